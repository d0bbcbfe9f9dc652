"""A traced function as a short list of four kinds of operations, which is what the ONNX and the C writers know.

- `map`: the same formula at every element, such as add or tanh;
- `contract`: a product of two arrays summed over some axes;
- `reduce`: a sum, a maximum or a minimum over some axes;
- `move`: every element of the output is an element of an input: slices, transpositions, concatenations and so on.

All that depends on parameters alone is computed now and becomes a constant, so that nothing of how eigenvalues are
parameterised is left. An operation outside of this list is refused.

(The converter jax2onnx would bring a dozen packages, an old orbax-checkpoint among them, and knows nothing of C.)
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend import core as jax_core

from koopax._errors import KoopaxError
from koopax.exporting.functions import Function

# fmt: off
MAPS = {
    "abs", "add", "and", "ceil", "clamp", "convert_element_type", "cos", "div", "eq", "erf", "erfc", "exp", "expm1",
    "floor", "ge", "gt", "integer_pow", "le", "log", "log1p", "logistic", "lt", "max", "min", "mul", "ne", "neg", "not",
    "or", "pow", "rsqrt", "select_n", "sign", "sin", "sqrt", "square", "sub", "tanh",
}
MOVES = {
    "broadcast_in_dim", "concatenate", "copy", "copy_p", "dynamic_slice", "dynamic_update_slice", "expand_dims",
    "gather", "pad", "reshape", "rev", "scatter", "slice", "split", "squeeze", "stack",
    "stop_gradient", "tile", "transpose", "unstack",
}
# fmt: on
LOOPS = {"scan", "while", "cond"}
REDUCTIONS = {"reduce_sum", "reduce_max", "reduce_min"}
# Which operands of a move say where elements go, and so must be known: those from the first to the second index.
INDICES = {"gather": (1, 2), "scatter": (1, 2), "dynamic_slice": (1, None), "dynamic_update_slice": (2, None)}


@dataclass(frozen=True, eq=False)
class Value:
    """An array that is known only when the program runs."""

    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def size(self) -> int:
        """Its number of elements."""
        return int(np.prod(self.shape, dtype=int))


Operand: TypeAlias = Value | np.ndarray


@dataclass(frozen=True, eq=False)
class Operation:
    """One operation; constants among its inputs are NumPy arrays, and tracers while they are computed."""

    kind: Literal["map", "contract", "reduce", "move"]
    name: str
    """The primitive's name in JAX."""
    inputs: list[Any]
    output: Value
    params: dict[str, Any] = field(default_factory=dict)
    """The primitive's parameters; of a move also `sources`, the index of every output element in all of the inputs,
    flattened and one behind the other."""
    primitive: Any = None
    """Of a move: the primitive itself."""
    index: int = 0
    """Of a move: which of the primitive's outputs this is."""


@dataclass(frozen=True)
class Program:
    """Operations in the order in which they run."""

    name: str
    inputs: dict[str, Value]
    operations: list[Operation]
    outputs: dict[str, Operand]


def trace(function: Function, form: str) -> Program:
    """The program of an exported function; `form` is the file format that an error tells of."""
    specs = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in function.inputs.values()]
    closed = jax.make_jaxpr(function.call)(*specs)
    arguments = [Value(spec.shape, np.dtype(np.float32)) for spec in specs]
    recorded: tuple[list[Operation], dict[str, Any], list[Any]] = ([], {}, [])

    def constants(parameters: list[Any]) -> list[Any]:
        """All that the program needs and that parameters alone determine, in one compiled call."""
        nonlocal recorded
        operations: list[Operation] = []
        found = list(_run(closed.jaxpr, parameters, arguments, operations, form))
        by_name = dict(zip(sorted(function.outputs), found, strict=True))  # as JAX orders a dictionary
        outputs = {name: by_name[name] for name in function.outputs}
        needed = _needed(operations, outputs)
        operands = [*outputs.values(), *(operand for operation in needed for operand in operation.inputs)]
        known = list({id(operand): operand for operand in operands if not isinstance(operand, Value)}.values())
        recorded = needed, outputs, known
        return known

    arrays = _compiled(constants, list(closed.consts))
    needed, outputs, known = recorded
    concrete = {id(operand): np.asarray(array) for operand, array in zip(known, arrays, strict=True)}
    operations = [
        replace(operation, inputs=[concrete.get(id(operand), operand) for operand in operation.inputs])
        for operation in needed
    ]
    _find_sources(operations, form)
    outputs = {name: concrete.get(id(operand), operand) for name, operand in outputs.items()}
    return Program(function.name, dict(zip(function.inputs, arguments, strict=True)), operations, outputs)


def _run(
    jaxpr: Any, parameters: Sequence[Any], arguments: Sequence[Any], operations: list[Operation], form: str
) -> Iterator[Any]:
    """Append what a jaxpr does with its arguments, compute what it does with parameters, and yield its outputs."""
    known: dict[Any, Any] = dict(zip((*jaxpr.constvars, *jaxpr.invars), (*parameters, *arguments), strict=True))

    def look_up(atom: Any) -> Any:
        if isinstance(atom, jax_core.Literal):
            return np.asarray(atom.val, atom.aval.dtype)  # type: ignore[attr-defined]
        return known[atom]

    for equation in jaxpr.eqns:
        inputs = [look_up(atom) for atom in equation.invars]
        inner = equation.params.get("jaxpr", equation.params.get("call_jaxpr"))
        if inner is not None and equation.primitive.name not in LOOPS:
            jaxpr_of, consts_of = (inner.jaxpr, inner.consts) if hasattr(inner, "consts") else (inner, ())
            outputs = list(_run(jaxpr_of, consts_of, inputs, operations, form))
        elif not any(isinstance(each, Value) for each in inputs):
            bound = equation.primitive.bind(*map(jnp.asarray, inputs), **equation.params)
            outputs = bound if equation.primitive.multiple_results else [bound]
        else:
            outputs = [_record(equation, inputs, index, operations, form) for index in range(len(equation.outvars))]
        known.update(zip(equation.outvars, outputs, strict=True))
    for atom in jaxpr.outvars:
        yield look_up(atom)


def _record(equation: Any, inputs: list[Any], index: int, operations: list[Operation], form: str) -> Any:
    """Append an operation that depends on the program's inputs; its output of that index."""
    name, shape = equation.primitive.name, tuple(equation.outvars[index].aval.shape)
    if 0 in shape:
        return np.zeros(shape, equation.outvars[index].aval.dtype)
    kinds = (("map", MAPS), ("move", MOVES), ("contract", {"dot_general"}), ("reduce", REDUCTIONS))
    kind: Any = next((kind for kind, names in kinds if name in names), None)
    if kind is None:
        raise _refused(name, form)
    if name == "concatenate":
        inputs = [each for each in inputs if 0 not in each.shape]
    value = Value(shape, np.dtype(equation.outvars[index].aval.dtype))
    extra = {"primitive": equation.primitive, "index": index} if kind == "move" else {}
    operations.append(Operation(kind, name, inputs, value, dict(equation.params), **extra))
    return value


def _find_sources(operations: list[Operation], form: str) -> None:
    """Fill in where each output element of every move comes from: the move itself, done with the elements' numbers."""
    moves = [operation for operation in operations if operation.kind == "move"]

    def sources() -> list[Any]:
        return [_numbers(operation, form) for operation in moves]

    for operation, found in zip(moves, _compiled(sources), strict=True):
        operation.params["sources"] = np.asarray(found)
        count = sum(operand.size for operand in data_operands(operation))
        if operation.params["sources"].min() < 0 or operation.params["sources"].max() >= count:
            raise _refused(f"{operation.name} out of range", form)


def _compiled(function: Callable[..., list[Any]], *arguments: Any) -> list[Any]:
    """What a function returns, in one compiled call; its refusals without what JAX has to say of them."""
    try:
        return jax.jit(function)(*arguments)
    except KoopaxError as error:
        raise KoopaxError(error.args[0]) from None


def _numbers(operation: Operation, form: str) -> Any:
    numbered, offset = [], 0
    first, last = INDICES.get(operation.name, (len(operation.inputs), None))
    params = {name: value for name, value in operation.params.items() if name != "sources"}
    for index, operand in enumerate(operation.inputs):
        if index >= first and (last is None or index < last):
            if isinstance(operand, Value):
                raise _refused(f"{operation.name} at an index known only when it runs", form)
            numbered.append(jnp.asarray(operand))
        else:
            numbered.append(offset + jnp.arange(operand.size, dtype=jnp.int32).reshape(operand.shape))
            offset += operand.size
    bound = operation.primitive.bind(*numbered, **params)
    return bound[operation.index] if operation.primitive.multiple_results else bound


def data_operands(operation: Operation) -> list[Operand]:
    """The inputs of a move that its `sources` number, without those that say where elements go."""
    first, last = INDICES.get(operation.name, (len(operation.inputs), None))
    return [x for i, x in enumerate(operation.inputs) if not (i >= first and (last is None or i < last))]


def is_reshape(operation: Operation) -> bool:
    """Whether a move leaves every element of its one input where it was."""
    operands = data_operands(operation)
    sources = operation.params["sources"].ravel()
    same_size = len(operands) == 1 and operands[0].size == sources.size
    return same_size and bool(np.array_equal(sources, np.arange(sources.size)))


def _needed(operations: list[Operation], outputs: dict[str, Any]) -> list[Operation]:
    """The operations that the outputs depend on."""
    wanted = {id(output) for output in outputs.values()}
    kept = []
    for operation in reversed(operations):
        if id(operation.output) in wanted:
            kept.append(operation)
            wanted.update(id(each) for each in operation.inputs)
    return kept[::-1]


def _refused(what: str, form: str) -> KoopaxError:
    return KoopaxError(f"this model can't be exported to {form}, as it uses {what}: use --to stablehlo.")
