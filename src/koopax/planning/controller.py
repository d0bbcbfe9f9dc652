"""What a control loop calls: an observation in, an action out, with nothing left to compile."""

from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from koopax._errors import KoopaxError
from koopax.models.dynamics import DynamicsModel
from koopax.planning.choice import SEARCHES, make_planner
from koopax.planning.hosted import compile_decisions
from koopax.planning.learned import LearnedModel
from koopax.planning.planner import Planner
from koopax.planning.protocol import Box, PlanningModel, PlanState, RememberingModel, remembered_observations
from koopax.planning.qp import QPState


class Controller:
    """A planner and a model for one environment, compiled when it is made.

        controller = koopax.Controller(model, "icem", bounds=(-2, 2), horizon=20, samples=64)
        action = controller.act(observation)

    It keeps what the planner carries from one decision to the next; `reset` before each new episode.
    """

    def __init__(
        self,
        model: DynamicsModel | PlanningModel,
        planner: Planner | str,
        *,
        bounds: tuple[Any, Any] | None = None,
        sizes: tuple[int, int] | None = None,
        seed: int = 0,
        **settings: Any,
    ):
        """Compile it.

        Args:
            model: what to plan with.
            planner: one with its settings, or a name (see `koopax.planning.PLANNERS`) for a trained model.
            bounds: lowest and highest actions, numbers or one for each component, where the planner is a name.
            sizes: of an observation and an action, where the model is not a trained one that knows them.
            seed: of the planner's candidates.
            **settings: of a planner by name: fields of its config, `cost`, `constraints` and `reencode_every`.
        """
        every = settings.pop("reencode_every", None) if isinstance(planner, str) and planner in SEARCHES else None
        if isinstance(planner, str):
            planner = _by_name(model, planner, bounds, settings)
        elif settings or bounds is not None:
            raise KoopaxError("this planner has its bounds and settings already: give them with a planner's name only.")
        if isinstance(model, DynamicsModel):
            sizes = model.config.state_size, model.config.action_size
            seen = planner.seen(model) if every is None else LearnedModel(model, every)
        else:
            seen = model
        if sizes is None:
            raise KoopaxError("the sizes of this model are not known: pass sizes=(observation size, action size).")
        self.planner = planner
        self.observation_size, self.action_size = sizes
        # NumPy's, which compiled code takes as they are and the solver of programs without asking a device for them.
        self._initial = jax.tree.map(np.asarray, planner.init(self.action_size))
        self._remembered = seen.remembered_actions if isinstance(seen, RememberingModel) else 0
        self._history = remembered_observations(seen)
        self._number = 0
        self.reset()
        example = self._with_history(np.zeros(self.observation_size, np.float32))
        self._decide = compile_decisions(planner, seen, example, self._past, self._initial, seed=seed)

    def reset(self) -> None:
        """Forget the episode: plans, past actions and observations."""
        self._state: PlanState = self._initial
        self._past = np.full((self._remembered, self.action_size), np.nan, np.float32)
        self._seen = np.full((self._history, self.observation_size), np.nan, np.float32)

    def _with_history(self, observation: np.ndarray) -> np.ndarray:
        """The observation behind those before it, for a model with a history."""
        return np.concatenate([self._seen, observation[None]]) if self._history else observation

    def act(self, observation: np.ndarray | Sequence[float]) -> np.ndarray:
        """The action `[A]` for an observation `[S]`, both in raw units; it is taken to be the one that is carried out.

        Where bounds of a `qp` are hard and no plan keeps them, that is a `KoopaxError`.
        """
        observed = np.asarray(observation, np.float32)
        if observed.shape != (self.observation_size,):
            raise KoopaxError(
                f"the observation has shape {observed.shape}, but this controller's have {(self.observation_size,)}: "
                "pass one observation of the environment that the model was trained on."
            )
        if not np.isfinite(observed).all():
            raise KoopaxError(f"the observation is {observed.tolist()}: pass finite numbers.")
        told = self._with_history(observed)
        action, self._state = self._decide(told, self._state, self._past, self._number)
        self._number += 1
        if self._remembered:
            self._past = np.concatenate([self._past[1:], action[None]])
        if self._history:
            self._seen = told[1:]
        if isinstance(self._state, QPState) and not self._state.feasible:
            raise infeasible(self.planner.longest, observed)
        return action

    @property
    def violation(self) -> float:
        """How far the last plan's states are outside their bounds, at most; 0 for planners that know of none."""
        return float(self._state.violation) if isinstance(self._state, QPState) else 0.0


def infeasible(horizon: int, observation: np.ndarray) -> KoopaxError:
    """That hard bounds can't be kept, in a sentence."""
    where = ", ".join(f"{value:.4g}" for value in observation)
    return KoopaxError(
        f"no plan of {horizon} steps from the state ({where}) keeps it within hard bounds: widen them, leave out hard, "
        "or start elsewhere."
    )


def _by_name(
    model: DynamicsModel | PlanningModel,
    name: str,
    bounds: tuple[Any, Any] | None,
    settings: dict[str, Any],
) -> Planner:
    if not isinstance(model, DynamicsModel):
        raise KoopaxError(f"planner {name!r} by name is for trained models: pass a planner that is made for yours.")
    if bounds is None:
        raise KoopaxError(f"planner {name!r} needs the bounds of the actions: pass bounds=(low, high).")
    low, high = (np.broadcast_to(np.asarray(end, float), (model.config.action_size,)) for end in bounds)
    if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
        raise KoopaxError(f"bounds are {bounds}: give finite lowest actions below the highest.")
    return make_planner(name, model, Box(low, high), **settings)
