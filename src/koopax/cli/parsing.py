"""How tyro shows options: one that may be left out is shown by what it takes, not as `{None}|INT`."""

import types
from dataclasses import replace
from functools import reduce
from operator import or_
from typing import Union, get_args, get_origin

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

registry = ConstructorRegistry()


@registry.primitive_rule
def _optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """`X | None` or `X | Y | None`, read as X or Y; leaving it out, or the word None, is None."""
    inner = [part for part in get_args(info.type) if part is not types.NoneType]
    is_union = get_origin(info.type) in (Union, types.UnionType)
    if not is_union or not inner or len(inner) == len(get_args(info.type)):
        return None
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(reduce(or_, inner), info.markers))
    if not isinstance(spec, PrimitiveConstructorSpec):
        return None
    return replace(
        spec,
        instance_from_str=lambda words: None if words == ["None"] else spec.instance_from_str(words),
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: ["None"] if value is None else spec.str_from_instance(value),
    )
