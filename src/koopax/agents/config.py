"""What the settings of every agent have in common."""

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar, TypeVar

from koopax._untrusted import from_json

C = TypeVar("C", bound="AgentConfig")


@dataclasses.dataclass(frozen=True)
class AgentConfig:
    """The base of an agent's settings; they are recorded in its run folder and read from there."""

    kind: ClassVar[str]
    """The agent's name, under which its run folder is recorded."""
    changeable: ClassVar[tuple[str, ...]]
    """Settings that may differ when a run is resumed, for they don't touch what is learned."""
    uncompiled: ClassVar[tuple[str, ...]] = ()
    """Further settings that compiled functions don't use."""

    @property
    def environment(self) -> str:
        """What is trained in, as `koopax.envs.make` takes it."""
        raise NotImplementedError

    def compiled(self: C) -> C:
        """The settings as compiled functions know them: what they don't use must not make them compile again."""
        unused = (*self.changeable, *self.uncompiled)
        return dataclasses.replace(self, **{name: getattr(type(self), name) for name in unused})

    def settled(self: C) -> C:
        """The settings as they are recorded: with defaults written out that a later koopax may have others for."""
        return self

    @classmethod
    def from_json(cls: type[C], document: Mapping[str, Any]) -> C:
        """The settings in a JSON document, in which tuples have become lists."""
        return from_json(cls, document)
