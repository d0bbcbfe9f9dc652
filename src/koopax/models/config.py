"""What a model is made of: all that is needed to build its structure."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from typing import Any

from koopax._errors import KoopaxError, unknown_name
from koopax.models.dictionaries import DICTIONARIES
from koopax.models.images import IMAGE_NETWORKS
from koopax.models.networks import ACTIVATIONS

ENCODERS = ("network", *DICTIONARIES)
HISTORY_ENCODERS = ("stacked", "recurrent")


@dataclass(frozen=True)
class ModelConfig:
    """All that is needed to build a model's structure; recorded in its file."""

    core: str
    """Name of the latent dynamics core."""
    state_size: int
    """Components of a state."""
    action_size: int
    """Components of an action; 0 for a system that nobody acts on."""
    latent_size: int = 512
    """Real width of a latent, to which a Koopman core with an action history adds the actions that it remembers."""
    encoder_hidden: tuple[int, ...] = (256,)
    """Widths of the state encoder's hidden layers."""
    decoder_hidden: tuple[int, ...] = (256,)
    """Widths of the state decoder's hidden layers."""
    reward_hidden: tuple[int, ...] | None = (256,)
    """Widths of the reward head's hidden layers; None reads the reward from the decoder of the latent it led to."""
    activation: str = "relu"
    """Activation of encoder, decoder and reward head, see `koopax.models.networks`."""
    linear_paths: bool = False
    """Whether encoder and decoder have a linear path beside their networks, where training begins at a regression."""
    encoder: str = "network"
    """What makes latents of states: "network", or a dictionary of `koopax.models.dictionaries` for a regression, whose
    functions then are the latent, whatever `latent_size` and the hidden layers say."""
    encoder_options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the dictionary."""
    history: int = 1
    """Observations that the encoder sees, the newest among them, and one action fewer; 1 where one tells all."""
    image_shape: tuple[int, int, int] | None = None
    """Height, width and channels where a state is a frame, see `koopax.models.frames`; None where it is a vector."""
    image_encoder: str = "patches"
    """Networks that see and draw frames, see `koopax.models.images`; the hidden layers then say nothing."""
    history_encoder: str = "stacked"
    """How a network sees them: "stacked" side by side, or "recurrent", which takes any number."""
    stochastic: bool = False
    """Whether a Koopman core has noise, whose variance makes intervals as wide as it is unsure; see
    `koopax.models.stochastic`."""
    reencode_every: int | None = None
    """Steps after which a rollout decodes and encodes again, in training and everywhere else unless told otherwise;
    None for never."""
    core_options: Mapping[str, Any] = field(default_factory=dict)
    """Keyword arguments of the core."""

    def __post_init__(self) -> None:
        for name in ("state_size", "action_size", "latent_size"):
            size = getattr(self, name)
            least = 0 if name == "action_size" else 1
            if not isinstance(size, int) or size < least:
                raise KoopaxError(f"{name} is {size!r}: use a whole number of {least} or more.")
        if not isinstance(self.history, int) or self.history < 1:
            raise KoopaxError(f"history is {self.history!r}: use 1 for the newest observation alone, or more.")
        self._check_frames()
        if self.history_encoder not in HISTORY_ENCODERS:
            raise unknown_name("history encoder", self.history_encoder, list(HISTORY_ENCODERS))
        for name in ("encoder_hidden", "decoder_hidden", "reward_hidden"):
            widths = getattr(self, name)
            if name == "reward_hidden" and widths is None:
                continue
            if not isinstance(widths, tuple | list) or not all(isinstance(w, int) and w > 0 for w in widths):
                raise KoopaxError(f"{name} is {widths!r}: use a list of widths, such as [256].")
            object.__setattr__(self, name, tuple(widths))
        every = self.reencode_every
        if every is not None and (not isinstance(every, int) or every < 1):
            raise KoopaxError(f"reencode_every is {every!r}: use 1 or more steps, or None for never.")
        if not isinstance(self.stochastic, bool):
            raise KoopaxError(f"stochastic is {self.stochastic!r}: use true or false.")
        if self.encoder not in ENCODERS:
            raise unknown_name("encoder", self.encoder, list(ENCODERS))
        if self.activation not in ACTIVATIONS:
            raise unknown_name("activation", self.activation, list(ACTIVATIONS))

    def _check_frames(self) -> None:
        if self.image_encoder not in IMAGE_NETWORKS:
            raise unknown_name("image encoder", self.image_encoder, list(IMAGE_NETWORKS))
        if self.image_shape is None:
            return
        shape = tuple(self.image_shape)
        if len(shape) != 3 or not all(isinstance(side, int) and side > 0 for side in shape):
            raise KoopaxError(
                f"image_shape is {self.image_shape!r}: use height, width and channels, such as [64, 64, 3]."
            )
        if prod(shape) != self.state_size:
            raise KoopaxError(f"image_shape is {shape}, which is no frame of {self.state_size} numbers.")
        if self.encoder != "network":
            raise KoopaxError(f"{self.name} is a regression, which takes no frames: use koopman or another network.")
        object.__setattr__(self, "image_shape", shape)

    @property
    def name(self) -> str:
        """What the model is called in tables: the core's name, or the regression's."""
        if self.encoder == "network":
            return f"{self.core}-stochastic" if self.stochastic else self.core
        return "dmdc" if self.encoder_options.get("degree") == 1 else "edmd"

    def __hash__(self) -> int:
        return hash(repr(self))  # the mapping has no hash; its representation is stable
