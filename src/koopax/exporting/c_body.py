"""The statements of C99 that do what a program does, and the constants that they read.

Every operation is a loop over one scratch array on the stack, in which an intermediate result takes the place of those
that are no longer needed.
"""

import numpy as np

from koopax.exporting.c_formulas import BINARY, Constants, formula, literal
from koopax.exporting.program import Operand, Operation, Program, Value, data_operands, is_reshape

# A move of more pieces than this reads its indices from a table.
MOST_PIECES = 8


class FunctionWriter:
    """Writes the body of one program."""

    def __init__(self, program: Program, constants: Constants):
        self.program, self.constants = program, constants
        self.lines: list[str] = []
        self.scratch_size = 0
        # Places and aliases are kept by identity: `_kept` holds the values that no operation holds.
        self._places: dict[int, tuple[str, int]] = {}
        self._kept: list[Value] = []
        self._free: list[tuple[int, int]] = []
        self._last_use = self._last_uses()

    def body(self) -> str:
        """The statements, which leave the outputs where the parameters of their names point to."""
        for name, value in self.program.inputs.items():
            self._places[id(value)] = (name, 0)
        for index, operation in enumerate(self.program.operations):
            self._write(operation)
            self._release(index)
        copies = []
        for name, operand in self.program.outputs.items():
            # An output may lie where an input does, so nothing is read from inputs once outputs are written.
            element = self._element(operand)
            if isinstance(operand, Value) and self._places[id(self._root(operand))][0] != "scratch":
                place = self._allocate(operand.size)
                self._loop(operand.size, f"scratch[{place} + i] = {element};")
                element = f"scratch[{place} + i]"
            copies.append((operand, f"{name}[i] = {element};"))
        for operand, statement in copies:
            self._loop(operand.size, statement)
        declared = [f"    float scratch[{self.scratch_size}];"] if self.scratch_size else []
        return "\n".join(declared + self.lines)

    # Where values are.

    def _root(self, operand: Operand) -> Operand:
        return self._aliases.get(id(operand), operand)

    def _last_uses(self) -> dict[int, int]:
        """The operation after which each value is not needed any more; those returned stay."""
        self._aliases: dict[int, Operand] = {}
        for operation in self.program.operations:
            if operation.kind == "move" and is_reshape(operation):
                source = data_operands(operation)[0]
                self._aliases[id(operation.output)] = self._root(source)
        last = {}
        for index, operation in enumerate(self.program.operations):
            for operand in operation.inputs:
                last[id(self._root(operand))] = index
        for operand in self.program.outputs.values():
            last[id(self._root(operand))] = len(self.program.operations)
        return last

    def _allocate(self, size: int) -> int:
        """The place of so many floats in the scratch array: the first gap that is wide enough, or its end."""
        for position, (start, width) in enumerate(self._free):
            if width >= size:
                self._free[position] = (start + size, width - size)
                return start
        start = self.scratch_size
        if self._free and sum(self._free[-1]) == self.scratch_size:
            start = self._free.pop()[0]
        self.scratch_size = start + size
        return start

    def _release(self, index: int) -> None:
        operation = self.program.operations[index]
        for operand in {id(self._root(x)): self._root(x) for x in operation.inputs}.values():
            place = self._places.get(id(operand), ("", 0))
            if isinstance(operand, Value) and self._last_use[id(operand)] == index and place[0] == "scratch":
                self._free.append((place[1], operand.size))
        merged: list[tuple[int, int]] = []
        for start, width in sorted(self._free):
            if merged and sum(merged[-1]) == start:
                merged[-1] = (merged[-1][0], merged[-1][1] + width)
            elif width:
                merged.append((start, width))
        self._free = merged

    def _element(self, operand: Operand, index: str = "i") -> str:
        """An element as an expression of C."""
        operand = self._root(operand)
        if isinstance(operand, Value):
            array, offset = self._places[id(operand)]
            index = index if operand.shape else "0"
            return f"{array}[{index}]" if not offset else f"{array}[{offset} + {index}]"
        floats = np.asarray(operand, np.float32)
        if not floats.size:
            return "0.0f"
        if np.all(floats == floats.flat[0]):
            return literal(float(floats.flat[0]))
        return f"{self.constants.name(floats)}[{index}]"

    # Operations.

    def _write(self, operation: Operation) -> None:
        if id(operation.output) in self._aliases:
            return
        size = operation.output.size
        place = self._allocate(size)
        self._places[id(operation.output)] = ("scratch", place)
        if size:
            self.lines.append(f"    /* {operation.name} {'x'.join(map(str, operation.output.shape)) or 'scalar'} */")
            getattr(self, f"_{operation.kind}")(operation, place)

    def _loop(self, count: int, statement: str) -> None:
        if count:
            self.lines.append(f"    for (int i = 0; i < {count}; i++) {statement}")

    def _map(self, operation: Operation, place: int) -> None:
        size = operation.output.size
        given = [self._spread(operand, operation.output.shape) for operand in operation.inputs]
        self._loop(size, f"scratch[{place} + i] = {formula(operation, given)};")

    def _spread(self, operand: Operand, shape: tuple[int, ...]) -> str:
        """The element that stands at index i of an array of that shape, over which the operand is broadcast."""
        if isinstance(operand, np.ndarray):
            return self._element(np.broadcast_to(operand, shape))
        if operand.shape in ((), shape):
            return self._element(operand, "i" if operand.shape else "0")
        terms, inner, outer = [], operand.size, int(np.prod(shape, dtype=int))
        for own, whole in zip(operand.shape, shape, strict=True):
            inner, outer = inner // own, outer // whole
            if own > 1:
                terms.append(f"i / {outer} % {whole} * {inner}")
        return self._element(operand, " + ".join(terms) or "0")

    def _move(self, operation: Operation, place: int) -> None:
        """Piece by piece where there are few, each of elements at equal distances; else by a table per input."""
        sources = operation.params["sources"].ravel()
        offset = 0
        for operand in data_operands(operation):
            targets = np.flatnonzero((sources >= offset) & (sources < offset + operand.size))
            origins = sources[targets] - offset
            offset += operand.size
            if not targets.size:
                continue
            pieces = _pieces(targets, origins)
            if len(pieces) <= MOST_PIECES:
                for target, origin, step, count in pieces:
                    read = self._element(operand, f"{origin}" if step == 0 else f"{origin} + {step} * i")
                    self._loop(count, f"scratch[{place + target} + i] = {read};")
            elif np.array_equal(targets, np.arange(sources.size)):
                table = self.constants.name(origins.astype(np.int32))
                self._loop(sources.size, f"scratch[{place} + i] = {self._element(operand, f'{table}[i]')};")
            else:
                to, table = (self.constants.name(each.astype(np.int32)) for each in (targets, origins))
                write = f"scratch[{place} + {to}[i]]"
                self._loop(targets.size, f"{write} = {self._element(operand, f'{table}[i]')};")

    def _contract(self, operation: Operation, place: int) -> None:
        """Row by row of the right array, so that the inner loop runs over neighbours in memory."""
        (left_sum, right_sum), (left_batch, right_batch) = operation.params["dimension_numbers"]
        left, right = operation.inputs
        batch, rows, columns, summed = _contraction_sizes(operation)
        left_at = self._arranged(left, left_batch, left_sum, last=True)
        right_at = self._arranged(right, right_batch, right_sum, last=False)
        start = f"scratch[{place} + (b * {rows} + m) * {columns} + n]"
        self.lines += [
            f"    for (int b = 0; b < {batch}; b++) for (int m = 0; m < {rows}; m++) {{",
            f"        for (int n = 0; n < {columns}; n++) {start} = 0.0f;",
            f"        for (int k = 0; k < {summed}; k++) {{",
            f"            const float factor = {self._element(left_at, f'(b * {rows} + m) * {summed} + k')};",
            f"            for (int n = 0; n < {columns}; n++) "
            f"{start} += factor * {self._element(right_at, f'(b * {summed} + k) * {columns} + n')};",
            "        }",
            "    }",
        ]

    def _arranged(self, operand: Operand, batch: tuple[int, ...], summed: tuple[int, ...], *, last: bool) -> Operand:
        """The operand with its batch axes first and its summed axes last or before the others."""
        free = tuple(axis for axis in range(len(operand.shape)) if axis not in (*batch, *summed))
        order = (*batch, *free, *summed) if last else (*batch, *summed, *free)
        moved_axes = [axis for axis in order if operand.shape[axis] > 1]
        if moved_axes == sorted(moved_axes):
            return operand
        if isinstance(operand, np.ndarray):
            return np.ascontiguousarray(operand.transpose(order))
        sources = np.arange(operand.size).reshape(operand.shape).transpose(order)
        value = Value(sources.shape, operand.dtype)
        self._places[id(value)] = ("scratch", self._allocate(value.size))
        self._move(Operation("move", "transpose", [operand], value, {"sources": sources}), self._places[id(value)][1])
        self._kept.append(value)
        return value

    def _reduce(self, operation: Operation, place: int) -> None:
        operand, axes = operation.inputs[0], tuple(operation.params["axes"])
        whole = self._arranged(operand, (), axes, last=True)
        count = int(np.prod([operand.shape[axis] for axis in axes], dtype=int))
        begin = {"reduce_sum": "0.0f", "reduce_max": "-INFINITY", "reduce_min": "INFINITY"}[operation.name]
        join = {"reduce_sum": "add", "reduce_max": "max", "reduce_min": "min"}[operation.name]
        joined = BINARY[join].format("found", self._element(whole, f"i * {count} + k"))
        self.lines += [
            f"    for (int i = 0; i < {operation.output.size}; i++) {{",
            f"        float found = {begin};",
            f"        for (int k = 0; k < {count}; k++) found = {joined};",
            f"        scratch[{place} + i] = found;",
            "    }",
        ]


def _contraction_sizes(operation: Operation) -> tuple[int, int, int, int]:
    """Batch, rows of the left array, columns of the right one, and the length of the sum."""
    (left_sum, _), (left_batch, _) = operation.params["dimension_numbers"]
    left, right = operation.inputs

    def product(shape: tuple[int, ...], axes: tuple[int, ...]) -> int:
        return int(np.prod([shape[axis] for axis in axes], dtype=int))

    batch, summed = product(left.shape, left_batch), product(left.shape, left_sum)
    size = [int(np.prod(each.shape, dtype=int)) for each in (left, right)]
    return batch, size[0] // max(batch * summed, 1), size[1] // max(batch * summed, 1), summed


def _pieces(targets: np.ndarray, origins: np.ndarray) -> list[tuple[int, int, int, int]]:
    """Runs of neighbouring targets whose origins are at equal distances: target, origin, distance, count."""
    pieces, start = [], 0
    while start < len(targets):
        end, step = start + 1, 1
        if end < len(targets) and targets[end] == targets[start] + 1:
            step = int(origins[end] - origins[start])
            while end < len(targets) and (targets[end] - targets[end - 1], origins[end] - origins[end - 1]) == (
                1,
                step,
            ):
                end += 1
        pieces.append((int(targets[start]), int(origins[start]), step, end - start))
        start = end
        if len(pieces) > MOST_PIECES:
            break
    return pieces
