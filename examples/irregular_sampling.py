"""Learn from samples at irregular times, with and without telling the model how long each step took.

The Koopman core integrates its dynamics exactly over any duration. Run: python examples/irregular_sampling.py
"""

import argparse

import jax
import numpy as np

import koopax


def simulate(rng, steps):
    """A pendulum under a held torque, looked at after random times between 0.2 and 1.8 nominal steps of 0.1 s."""
    durations = rng.uniform(0.2, 1.8, size=steps)
    torques = rng.uniform(-1, 1, size=(steps, 1))
    states = [np.array([rng.uniform(-1, 1), 0.0])]
    for torque, duration in zip(torques[:, 0], durations, strict=True):
        angle, speed = states[-1]
        for _ in range(20):  # small steps, to be exact
            speed += 0.1 * duration / 20 * (torque - 4 * np.sin(angle) - 0.2 * speed)
            angle += 0.1 * duration / 20 * speed
        states.append(np.array([angle, speed]))
    return np.array(states), torques, np.zeros(steps), durations


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few steps only, to see that it runs")
    quick = parser.parse_args().quick

    rng = np.random.default_rng(0)
    episodes = [simulate(rng, 30 if quick else 150) for _ in range(6 if quick else 80)]
    states, torques, rewards, durations = map(list, zip(*episodes, strict=True))
    horizon = 10 if quick else 50
    for name, known in (("durations unknown", None), ("durations known", durations)):
        data = koopax.Episodes.from_arrays(states, torques, rewards, durations=known)
        train, test = data.split(0.8, seed=0)
        model = koopax.DynamicsModel.create(
            "koopman", train, latent_size=64, encoder_hidden=(128,), decoder_hidden=(128,), key=jax.random.key(0)
        )
        run = koopax.fit(
            model, train, horizon=horizon, steps=2 if quick else 2000, batch_size=4 if quick else 32, seed=0
        )
        error = koopax.prediction_error(run.model, test, horizon=horizon, windows=50 if quick else 1000).state
        print(f"{name}: normalised state error over {horizon} steps {error.normalised:.4f}")


if __name__ == "__main__":
    main()
