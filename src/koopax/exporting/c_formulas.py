"""Numbers, constants and elementwise formulas as C99 has them. Booleans and whole numbers are floats as well."""

import hashlib
from collections.abc import Callable

import numpy as np

from koopax.exporting.program import Operation

UNARY: dict[str, str] = {
    "abs": "fabsf({0})",
    "ceil": "ceilf({0})",
    "cos": "cosf({0})",
    "erf": "erff({0})",
    "erfc": "erfcf({0})",
    "exp": "expf({0})",
    "expm1": "expm1f({0})",
    "floor": "floorf({0})",
    "log": "logf({0})",
    "log1p": "log1pf({0})",
    "logistic": "1.0f / (1.0f + expf(-{0}))",
    "neg": "-{0}",
    "not": "(float)({0} == 0.0f)",
    "rsqrt": "1.0f / sqrtf({0})",
    "sign": "(float)(({0} > 0.0f) - ({0} < 0.0f))",
    "sin": "sinf({0})",
    "sqrt": "sqrtf({0})",
    "square": "{0} * {0}",
    "tanh": "tanhf({0})",
}
BINARY: dict[str, str] = {
    "add": "{0} + {1}",
    "and": "(float)({0} != 0.0f && {1} != 0.0f)",
    "div": "{0} / {1}",
    "eq": "(float)({0} == {1})",
    "ge": "(float)({0} >= {1})",
    "gt": "(float)({0} > {1})",
    "le": "(float)({0} <= {1})",
    "lt": "(float)({0} < {1})",
    "max": "({0} > {1} || {0} != {0}) ? {0} : {1}",
    "min": "({0} < {1} || {0} != {0}) ? {0} : {1}",
    "mul": "{0} * {1}",
    "ne": "(float)({0} != {1})",
    "or": "(float)({0} != 0.0f || {1} != 0.0f)",
    "pow": "powf({0}, {1})",
    "sub": "{0} - {1}",
}


class Constants:
    """The static arrays of a header; equal ones are written once."""

    def __init__(self, prefix: str):
        self.prefix = prefix
        self.arrays: dict[str, tuple[str, np.ndarray]] = {}

    def name(self, array: np.ndarray) -> str:
        """The name of an array of these numbers, floats or integers."""
        array = np.ascontiguousarray(array)
        digest = hashlib.sha256(array.dtype.str.encode() + array.tobytes()).hexdigest()
        if digest not in self.arrays:
            self.arrays[digest] = (f"{self.prefix}_constant_{len(self.arrays)}", array)
        return self.arrays[digest][0]

    def num_bytes(self) -> int:
        """What they take as float and int of 4 bytes."""
        return 4 * sum(array.size for _, array in self.arrays.values())

    def text(self) -> str:
        """Their definitions."""
        lines = []
        for name, array in self.arrays.values():
            whole = array.dtype.kind == "i"
            numbers = [str(each) if whole else literal(each) for each in array.ravel().tolist()]
            rows = [", ".join(numbers[start : start + 12]) for start in range(0, len(numbers), 12)]
            kind = "int" if whole else "float"
            lines.append(f"static const {kind} {name}[{array.size}] = {{\n    " + ",\n    ".join(rows) + "};")
        return "\n".join(lines)


def literal(value: float) -> str:
    """A float of C with all of its digits."""
    if np.isnan(value):
        return "NAN"
    if np.isinf(value):
        return "INFINITY" if value > 0 else "(-INFINITY)"
    text = f"{value:.9g}"
    text = text if any(mark in text for mark in ".e") else text + ".0"
    return f"({text}f)" if value < 0 or text.startswith("-") else f"{text}f"


def formula(operation: Operation, given: list[str]) -> str:
    """What a map does with an element of each of its inputs."""
    name = operation.name
    if name in UNARY:
        return UNARY[name].format(*given)
    if name in BINARY:
        return BINARY[name].format(*given)
    special: dict[str, Callable[[], str]] = {
        "clamp": lambda: "{1} < {0} ? {0} : ({1} > {2} ? {2} : {1})".format(*given),
        "convert_element_type": lambda: _converted(operation, given[0]),
        "integer_pow": lambda: _power(given[0], operation.params["y"]),
        "select_n": lambda: f"{given[0]} != 0.0f ? {given[2]} : {given[1]}",
    }
    return special[name]()


def _converted(operation: Operation, given: str) -> str:
    if operation.output.dtype.kind == "b":
        return f"(float)({given} != 0.0f)"
    return f"truncf({given})" if operation.output.dtype.kind in "iu" else given


def _power(given: str, exponent: int) -> str:
    product = " * ".join([given] * abs(exponent)) or "1.0f"
    return product if exponent >= 0 else f"1.0f / ({product})"
