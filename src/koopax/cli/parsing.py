"""How tyro shows options: one that may be left out is shown by what it takes, not as `{None}|INT`."""

import types
from dataclasses import replace
from typing import Union, get_args, get_origin

from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

registry = ConstructorRegistry()


@registry.primitive_rule
def _optional(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """`X | None`, read as X; leaving it out, or the word None, is None."""
    inner = [part for part in get_args(info.type) if part is not types.NoneType]
    is_union = get_origin(info.type) in (Union, types.UnionType)
    if not is_union or len(inner) != 1 or len(get_args(info.type)) != 2:
        return None
    spec = ConstructorRegistry.get_primitive_spec(PrimitiveTypeInfo.make(inner[0], info.markers))
    if not isinstance(spec, PrimitiveConstructorSpec):
        return None
    return replace(
        spec,
        instance_from_str=lambda words: None if words == ["None"] else spec.instance_from_str(words),
        is_instance=lambda value: value is None or spec.is_instance(value),
        str_from_instance=lambda value: ["None"] if value is None else spec.str_from_instance(value),
    )
