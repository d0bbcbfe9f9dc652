"""Read from a trained model what its system does: which motions there are, how fast they turn, how long they last.

The system is two damped oscillators that are seen through a nonlinear sensor. Run: python examples/read_the_spectrum.py
"""

import argparse

import jax
import numpy as np

import koopax

HALF_LIVES, PERIODS = np.array([60.0, 25.0]), np.array([40.0, 11.0])  # in steps


def simulate(rng, steps):
    """What the sensor shows of a swing after a random start, and of pushes on both oscillators."""
    factor = 0.5 ** (1 / HALF_LIVES) * np.exp(2j * np.pi / PERIODS)
    modes, pushes = [rng.normal(size=2) + 1j * rng.normal(size=2)], rng.normal(size=(steps, 1))
    for push in pushes[:, 0]:
        modes.append(factor * modes[-1] + 0.1 * push)
    (first, second) = np.array(modes).T
    sensor = np.stack([np.tanh(first.real), first.imag + 0.3 * second.real, second.imag, np.sin(second.real)], axis=-1)
    return sensor, pushes, np.zeros(steps)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="a few steps only, to see that it runs")
    quick = parser.parse_args().quick

    rng = np.random.default_rng(0)
    episodes = [simulate(rng, 120) for _ in range(6 if quick else 100)]
    data = koopax.Episodes.from_arrays(*map(list, zip(*episodes, strict=True)))
    train, test = data.split(0.8, seed=0)
    # Few modes and linear inputs: a model that is small enough to be read.
    model = koopax.DynamicsModel.create(
        "koopman",
        train,
        latent_size=16,
        action_hidden=(),
        action_history=1,
        decoder_hidden=(64,),
        key=jax.random.key(0),
    )
    run = koopax.fit(model, train, horizon=100, steps=3 if quick else 3000, batch_size=4 if quick else 32, seed=0)
    error = koopax.prediction_error(run.model, test, horizon=100, windows=20 if quick else 500)
    print(f"normalised state error over 100 steps: {error.state.normalised:.4f}")

    modes = koopax.analyse_spectrum(run.model, test).table()
    print(
        "true periods and half-lives:",
        *(f"{p:.0f} and {h:.0f} steps;" for p, h in zip(PERIODS, HALF_LIVES, strict=True)),
    )
    for share, period, half_life in list(zip(modes["importance"], modes["period"], modes["half_life"], strict=True))[
        :5
    ]:
        print(f"{share:6.1%} of the motion: period {period:5.1f} steps, half-life {half_life:6.1f} steps")


if __name__ == "__main__":
    main()
