"""A program as an ONNX graph, by the helpers of the onnx package.

Operations of a program are ONNX's own where they have one; a move without one gathers from its flattened inputs.
"""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from koopax._atomic import new_file
from koopax._errors import KoopaxError
from koopax.exporting.functions import ModelFunctions
from koopax.exporting.program import Operand, Operation, Program, Value, data_operands, is_reshape, trace

# Old enough for the runtimes in use, new enough for every operation here.
OPSET, IR_VERSION = 17, 8

MAPS: dict[str, str] = {
    "abs": "Abs",
    "add": "Add",
    "and": "And",
    "ceil": "Ceil",
    "cos": "Cos",
    "div": "Div",
    "eq": "Equal",
    "erf": "Erf",
    "exp": "Exp",
    "floor": "Floor",
    "ge": "GreaterOrEqual",
    "gt": "Greater",
    "le": "LessOrEqual",
    "log": "Log",
    "logistic": "Sigmoid",
    "lt": "Less",
    "max": "Max",
    "min": "Min",
    "mul": "Mul",
    "neg": "Neg",
    "not": "Not",
    "or": "Or",
    "pow": "Pow",
    "sign": "Sign",
    "sin": "Sin",
    "sqrt": "Sqrt",
    "sub": "Sub",
    "tanh": "Tanh",
}


def write_onnx(functions: ModelFunctions, folder: Path) -> list[str]:
    """Write `encode.onnx`, `step.onnx` and `rollout.onnx`; their names."""
    onnx = _onnx()
    encode, step = trace(functions.encode, "ONNX"), trace(functions.step, "ONNX")
    graphs = {"encode": _plain(encode), "step": _plain(step), "rollout": _rollout(encode, step, functions)}
    for name, graph in graphs.items():
        model = onnx.helper.make_model(
            graph, opset_imports=[onnx.helper.make_opsetid("", OPSET)], ir_version=IR_VERSION, producer_name="koopax"
        )
        onnx.checker.check_model(model, full_check=True)
        with new_file(folder / f"{name}.onnx", overwrite=True) as temporary:
            temporary.write_bytes(model.SerializeToString())
    return [f"{name}.onnx" for name in graphs]


def _onnx() -> Any:
    try:
        import onnx
    except ImportError as error:
        raise KoopaxError("--to onnx needs the package onnx: pip install 'koopax[export]'.") from error
    return onnx


class GraphWriter:
    """Collects the nodes of one graph and the constants of it and of those within it."""

    def __init__(self, scope: str, constants: dict[str, Any] | None = None):
        self.scope = scope
        self.nodes: list[Any] = []
        self.constants: dict[str, Any] = {} if constants is None else constants
        self._names: dict[int, str] = {}
        self._count = 0

    def add(self, program: Program, inputs: dict[str, str], outputs: dict[str, str]) -> None:
        """Append a program whose inputs and outputs have these names in the graph."""
        self._names = {id(value): inputs[name] for name, value in program.inputs.items()}
        for operation in program.operations:
            self._names[id(operation.output)] = getattr(self, f"_{operation.kind}")(operation)
        for name, operand in program.outputs.items():
            self.node("Identity", [self.name(operand)], outputs[name])

    def node(self, kind: str, inputs: Iterable[str], output: str | None = None, **attributes: Any) -> str:
        """Append a node and return the name of its output."""
        if output is None:
            output = f"{self.scope}_{self._count}"
            self._count += 1
        self.nodes.append(_onnx().helper.make_node(kind, list(inputs), [output], **attributes))
        return output

    def name(self, operand: Operand) -> str:
        """The name of a value, or of a constant, which is added if it is new."""
        if isinstance(operand, Value):
            return self._names[id(operand)]
        array = np.asarray(operand, order="C")
        key = f"{array.dtype.str}{array.shape}".encode() + array.tobytes()
        name = f"constant_{hashlib.sha256(key).hexdigest()[:16]}"
        if name not in self.constants:
            self.constants[name] = _onnx().numpy_helper.from_array(array, name)
        return name

    def integers(self, numbers: Iterable[int]) -> str:
        """The name of a constant of whole numbers."""
        return self.name(np.array(list(numbers), np.int64))

    def reshaped(self, name: str, shape: Iterable[int]) -> str:
        """A node that gives an array another shape."""
        return self.node("Reshape", [name, self.integers(shape)])

    def _map(self, operation: Operation) -> str:
        given = [self.name(operand) for operand in operation.inputs]
        kind, dtype = operation.name, operation.output.dtype

        def constant(value: float | int) -> str:
            return self.name(np.array(value, dtype))

        if kind in MAPS:
            return self.node(MAPS[kind], given)
        match kind:
            case "ne":
                return self.node("Not", [self.node("Equal", given)])
            case "erfc":
                return self.node("Sub", [constant(1), self.node("Erf", given)])
            case "square":
                return self.node("Mul", [given[0], given[0]])
            case "integer_pow":
                return self.node("Pow", [given[0], constant(operation.params["y"])])
            case "rsqrt":
                return self.node("Reciprocal", [self.node("Sqrt", given)])
            case "select_n":
                return self.node("Where", [given[0], given[2], given[1]])
            case "clamp":
                return self.node("Min", [self.node("Max", [given[1], given[0]]), given[2]])
            case "convert_element_type":
                return self.node("Cast", given, to=_onnx().helper.np_dtype_to_tensor_dtype(dtype))
            case "expm1":
                # exp(x) − 1 without cancellation: 2 sinh(x/2) exp(x/2).
                half = self.node("Mul", [given[0], constant(0.5)])
                return self.node(
                    "Mul", [self.node("Mul", [self.node("Sinh", [half]), self.node("Exp", [half])]), constant(2)]
                )
        raise KoopaxError(f"this model can't be exported to ONNX, as it uses {kind}: use --to stablehlo.")

    def _move(self, operation: Operation) -> str:
        output, operands = operation.output, data_operands(operation)
        names = [self.name(operand) for operand in operands]
        if is_reshape(operation):
            return self.reshaped(names[0], output.shape)
        match operation.name:
            case "transpose":
                return self.node("Transpose", names, perm=list(operation.params["permutation"]))
            case "concatenate":
                return self.node("Concat", names, axis=operation.params["dimension"])
            case "slice":
                begin, end = operation.params["start_indices"], operation.params["limit_indices"]
                steps = operation.params["strides"] or [1] * len(begin)
                axes = range(len(begin))
                return self.node("Slice", [names[0], *map(self.integers, (begin, end, axes, steps))])
            case "broadcast_in_dim":
                placed = operation.params["broadcast_dimensions"]
                shape = [
                    operands[0].shape[placed.index(axis)] if axis in placed else 1 for axis in range(len(output.shape))
                ]
                return self.node("Expand", [self.reshaped(names[0], shape), self.integers(output.shape)])
        flat = [self.reshaped(name, [-1]) for name in names]
        joined = self.node("Concat", flat, axis=0) if len(flat) > 1 else flat[0]
        return self.node("Gather", [joined, self.name(operation.params["sources"].astype(np.int64))], axis=0)

    def _contract(self, operation: Operation) -> str:
        """As a product of matrices [batch, rows, sum] and [batch, sum, columns]."""
        (left_sum, right_sum), (left_batch, right_batch) = operation.params["dimension_numbers"]
        left, right = operation.inputs
        if (len(left.shape), len(right.shape)) == (1, 2) and (*left_sum, *right_sum) == (0, 0):
            return self.node("MatMul", [self.name(left), self.name(right)])
        batch = int(np.prod([left.shape[axis] for axis in left_batch], dtype=int))
        summed = int(np.prod([left.shape[axis] for axis in left_sum], dtype=int))
        left_name = self._matrix(left, left_batch, left_sum, (batch, -1, summed), sum_last=True)
        right_name = self._matrix(right, right_batch, right_sum, (batch, summed, -1), sum_last=False)
        return self.reshaped(self.node("MatMul", [left_name, right_name]), operation.output.shape)

    def _matrix(self, operand: Operand, batch: Any, summed: Any, shape: tuple[int, ...], *, sum_last: bool) -> str:
        free = [axis for axis in range(len(operand.shape)) if axis not in (*batch, *summed)]
        order = [*batch, *free, *summed] if sum_last else [*batch, *summed, *free]
        if isinstance(operand, np.ndarray):
            return self.name(operand.transpose(order).reshape(shape))
        name = self.name(operand)
        if order != sorted(order):
            name = self.node("Transpose", [name], perm=order)
        return self.reshaped(name, shape)

    def _reduce(self, operation: Operation) -> str:
        name, axes = self.name(operation.inputs[0]), list(operation.params["axes"])
        if operation.name == "reduce_sum":
            return self.node("ReduceSum", [name, self.integers(axes)], keepdims=0)
        kind = {"reduce_max": "ReduceMax", "reduce_min": "ReduceMin"}[operation.name]
        return self.node(kind, [name], axes=axes, keepdims=0)


def _plain(program: Program) -> Any:
    """The graph of one program, whose inputs and outputs keep their names."""
    writer = GraphWriter("value")
    writer.add(program, {name: name for name in program.inputs}, {name: name for name in program.outputs})
    inputs = [_float(name, value.shape) for name, value in program.inputs.items()]
    outputs = [_float(name, operand.shape) for name, operand in program.outputs.items()]
    return _onnx().helper.make_graph(
        writer.nodes, program.name, inputs, outputs, initializer=list(writer.constants.values())
    )


def _rollout(encode: Program, step: Program, functions: ModelFunctions) -> Any:
    """encode, then a Scan over the actions whose body is step."""
    helper, sizes = _onnx().helper, functions.sizes
    writer = GraphWriter("value")
    writer.add(encode, {"state": "state"}, {"latent": "first_latent"})
    inner = GraphWriter("inner", writer.constants)
    names = {"next_latent": "next_latent", "state": "next_state", "reward": "reward"}
    inner.add(step, {"latent": "latent", "action": "action"}, names)
    body = helper.make_graph(
        inner.nodes,
        "step",
        [_float("latent", (sizes.latent,)), _float("action", (sizes.action,))],
        [_float("next_latent", (sizes.latent,)), _float("next_state", (sizes.state,)), _float("reward", ())],
    )
    scan = helper.make_node(
        "Scan", ["first_latent", "actions"], ["last_latent", "states", "rewards"], body=body, num_scan_inputs=1
    )
    inputs = [_float(name, shape) for name, shape in functions.rollout.inputs.items()]
    outputs = [_float("states", (sizes.horizon, sizes.state)), _float("rewards", (sizes.horizon,))]
    return helper.make_graph(
        [*writer.nodes, scan], "rollout", inputs, outputs, initializer=list(writer.constants.values())
    )


def _float(name: str, shape: tuple[int, ...]) -> Any:
    onnx = _onnx()
    return onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, list(shape))
