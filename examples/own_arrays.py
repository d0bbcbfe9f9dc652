"""Train a model on arrays of your own, test it on episodes it has not seen, save it and use it.

The arrays are of two masses on springs, the first of which is pushed. Run: python examples/own_arrays.py
"""

import argparse

import jax
import numpy as np

import koopax


def simulate(rng, steps):
    """One episode: states [steps + 1, 4], actions [steps, 1], rewards [steps]."""
    states, actions = [rng.normal(size=4)], rng.uniform(-1, 1, size=(steps, 1))
    for push in actions[:, 0]:
        x1, v1, x2, v2 = states[-1]
        v1 = v1 + 0.1 * (push - x1 + (x2 - x1) - 0.1 * v1)
        v2 = v2 + 0.1 * ((x1 - x2) - x2**3 - 0.1 * v2)
        states.append(np.array([x1 + 0.1 * v1, v1, x2 + 0.1 * v2, v2]))
    states = np.array(states)
    return states, actions, -np.abs(states[:-1, 2])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few steps only, to see that it runs")
    quick = parser.parse_args().quick

    rng = np.random.default_rng(0)
    episodes = [simulate(rng, 40 if quick else 200) for _ in range(6 if quick else 60)]
    data = koopax.Episodes.from_arrays(
        *map(list, zip(*episodes, strict=True)), state_names=["x1", "v1", "x2", "v2"], action_names=["push"]
    )
    train, test = data.split(0.8, seed=0)
    model = koopax.DynamicsModel.create(
        "koopman", train, latent_size=128, decoder_hidden=(128,), encoder_hidden=(128,), key=jax.random.key(0)
    )
    horizon = 20 if quick else 100
    run = koopax.fit(model, train, horizon=horizon, steps=3 if quick else 2000, batch_size=4 if quick else 64, seed=0)

    error = koopax.prediction_error(run.model, test, horizon=horizon, windows=50 if quick else 1000)
    print(f"state error over {horizon} steps, 1 is that of predicting the mean: {error.state.normalised:.4f}")
    print(f"of predicting no change: {error.baselines['constant'][0].normalised:.4f}")

    run.model.save("masses.koopax")
    model = koopax.load_model("masses.koopax")
    states, actions, _ = simulate(rng, horizon)
    predicted = model.rollout(states[0], actions).states
    print("second mass in the end, true and predicted:", f"{states[-1, 2]:.3f}", f"{float(predicted[-1, 2]):.3f}")


if __name__ == "__main__":
    main()
