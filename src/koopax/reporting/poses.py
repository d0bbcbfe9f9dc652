"""From observations back to poses: what MuJoCo needs to show a state that a model predicts.

A Gymnasium MuJoCo observation begins with the joint positions, without the first few that tell where the body is, and
goes on with the joint velocities. The missing positions are the integrals of the first velocities, from 0 on.
"""

from typing import Any

import numpy as np

from koopax._errors import KoopaxError


def joint_positions(env: Any, states: np.ndarray) -> np.ndarray:
    """Positions qpos [time, nq] of states [time, S] that follow each other; raises where observations don't tell."""
    inner = env.unwrapped
    structure = getattr(inner, "observation_structure", None)
    if structure is None or not {"qpos", "qvel"} <= set(structure):
        raise KoopaxError(
            f"the observations of {env.spec.id if env.spec else 'the environment'} don't tell its joints' positions: "
            "videos are made for Gymnasium's MuJoCo environments."
        )
    skipped, seen, velocities = structure.get("skipped_qpos") or 0, structure["qpos"], structure["qvel"]
    if inner.model.nq != skipped + seen or states.shape[1] < seen + velocities:
        raise KoopaxError(
            f"states of {states.shape[1]} components are not observations of {env.spec.id}, which begin with "
            f"{seen} positions and {velocities} velocities: videos need data of that environment."
        )
    positions = np.zeros((len(states), inner.model.nq))
    positions[:, skipped:] = states[:, :seen]
    # The trapezium rule: velocities are those at the states.
    hidden = states[:, seen : seen + skipped]
    positions[1:, :skipped] = np.cumsum((hidden[1:] + hidden[:-1]) / 2 * inner.dt, axis=0)
    return positions
