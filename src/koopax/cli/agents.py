"""koopax agent …"""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import tyro

from koopax._errors import KoopaxError
from koopax.cli.agent_options import agent_options, given_alone, kind_of, refuse_changes
from koopax.cli.options import Options
from koopax.cli.output import errors, print_json, results, training_progress

if TYPE_CHECKING:
    from koopax.agents.pixels.demonstration import PixelDemonstration
    from koopax.agents.run import TrainResult
    from koopax.agents.tdmpc.demonstration import Demonstration

app = tyro.extras.SubcommandApp()
train = tyro.extras.SubcommandApp()
app.command(train, name="train", help="Train an agent in an environment.")


@train.command
def sac(
    *,
    task: str | None = None,
    runs: Annotated[tuple[Path, ...], tyro.conf.arg(name="in")] = (),
    out: Path,
    steps: int | None = None,
    seed: int | None = None,
    evaluate_every: int | None = None,
    evaluate_episodes: int | None = None,
    resume: bool = False,
) -> None:
    """Soft Actor-Critic from states, with batch-normalised critics; or in the simulator that a trained model is.

    Args:
        task: a Gymnasium id, a dm_control id or a DMC task such as cheetah-run; that of the model's data, or
            HalfCheetah-v5, if none is given.
        runs: run folders of models to train in, from the data that they were trained on, instead of the environment,
            which then only judges; several, or a folder of several seeds, are penalised where they disagree.
        out: folder for metrics, checkpoints and policy snapshots.
        steps: environment steps, a million if not given; with --in imagined steps, 250000 if not given.
        seed: of everything random; 0 if none is given.
        evaluate_every: environment steps between evaluations.
        evaluate_episodes: episodes per evaluation.
        resume: continue the run in `out` with its own settings; only steps and evaluations may change.
    """
    from koopax.agents import SACConfig, train_sac
    from koopax.agents.run import read_config

    if runs or (resume and kind_of(out) == "sac-imagination"):
        settings = {"steps": steps, "evaluate_every": evaluate_every, "evaluate_episodes": evaluate_episodes}
        _imagination(task, runs, out, seed, given_alone(settings), resume=resume)
        return
    fixed = {"env": task, "seed": seed}
    if resume:
        recorded = read_config(out, SACConfig)
        refuse_changes(given_alone(fixed), recorded, out, task)
    else:
        recorded = SACConfig(env=task or "HalfCheetah-v5", seed=seed or 0)
    changeable = {"steps": steps, "evaluate_every": evaluate_every, "evaluate_episodes": evaluate_episodes}
    config = dataclasses.replace(recorded, **given_alone(changeable))
    with training_progress(f"{config.env} sac", config.steps, None) as watch:
        result = train_sac(config, out, resume=resume, watch=watch)
    _tell(result)


def _imagination(
    task: str | None, runs: tuple[Path, ...], out: Path, seed: int | None, changeable: dict[str, Any], *, resume: bool
) -> None:
    """SAC in the models of these runs."""
    from koopax.agents import ImaginationConfig, train_imagination
    from koopax.agents.imagination.train import read_runs
    from koopax.agents.run import read_config
    from koopax.envs import refuse_module

    folders = tuple(str(run) for run in runs)
    if resume:
        recorded = read_config(out, ImaginationConfig)
        refuse_changes(given_alone({"env": task, "seed": seed, "runs": folders or None}), recorded, out, task)
        given = read_runs(recorded.runs)
    else:
        given = read_runs(folders)
        env = task or given.episodes.metadata.environment
        if env is None:
            raise KoopaxError("the data does not name its environment: give --task.")
        if task is None:
            refuse_module(env, f"the data of {folders[0]!r}", f"add --task {env} if you trust it")
        recorded = ImaginationConfig(env=env, runs=folders, seed=seed or 0)
    config = dataclasses.replace(recorded, **changeable)
    with training_progress(f"{config.env} sac in imagination", config.steps, None) as watch:
        result = train_imagination(config, out, given=given, resume=resume, watch=watch)
    _tell(result)


@train.command
def tdmpc(
    *,
    task: str | None = None,
    dynamics: str | None = None,
    out: Path,
    steps: int | None = None,
    seed: int | None = None,
    horizon: int | None = None,
    decay: float | None = None,
    latent_size: int | None = None,
    batch_size: int | None = None,
    samples: int | None = None,
    iterations: int | None = None,
    seed_decisions: int | None = None,
    action_repeat: int | None = None,
    evaluate_every: int | None = None,
    evaluate_episodes: int | None = None,
    published: bool = False,
    option: Options = [],  # noqa: B006  (only read)
    resume: bool = False,
) -> None:
    """TD-MPC from states: plan with a learned latent model, its reward and its values.

    Args:
        task: a DMC task, a dm_control id or a Gymnasium id; cheetah-run if none is given.
        dynamics: latent core: koopman, which is the default, mlp (as in TD-MPC), gru, transformer or dssm.
        out: folder for metrics and checkpoints.
        steps: environment steps; a decision takes several of them on DMC tasks.
        seed: of everything random; 0 if none is given.
        horizon: decisions that a plan looks ahead: 20 for koopman, 5 for the others.
        decay: weight of a step relative to the one before it in the losses.
        latent_size: width of the latent.
        batch_size: windows per update.
        samples: candidates per iteration of the planner.
        iterations: iterations of the planner.
        seed_decisions: decisions with random actions before the first update.
        action_repeat: environment steps per decision; as published for DMC tasks, 1 elsewhere.
        evaluate_every: decisions between evaluations.
        evaluate_episodes: episodes per evaluation.
        published: TD-MPC's published sizes, and TOLD's dynamics for mlp, instead of those for one CPU core.
        option: any other setting of the agent, such as plan_lambda=0.8, or of its core, such as core.bilinear=true.
        resume: continue the run in `out` with its own settings; only steps and evaluations may change.
    """
    from koopax.agents import TDMPCConfig, tdmpc_arm, train_tdmpc
    from koopax.agents.run import read_config

    changeable = {"steps": steps, "evaluate_every": evaluate_every, "evaluate_episodes": evaluate_episodes}
    fixed = {
        "task": task,
        "seed": seed,
        "horizon": horizon,
        "decay": decay,
        "latent_size": latent_size,
        "batch_size": batch_size,
        "samples": samples,
        "iterations": iterations,
        "seed_decisions": seed_decisions,
        "action_repeat": action_repeat,
    }
    if resume:
        recorded = read_config(out, TDMPCConfig)
        refuse_changes(given_alone(fixed | {"dynamics": dynamics}), recorded, out, task)
        if published or option:
            raise KoopaxError("--resume keeps a run's settings: leave out --published and --option.")
    else:
        told = given_alone(fixed) | agent_options(option, (*fixed, *changeable, "dynamics", "core_options"))
        recorded = tdmpc_arm(dynamics or "koopman", published=published, **told)
    config = dataclasses.replace(recorded, **given_alone(changeable))
    with training_progress(f"{config.task} {config.dynamics}", config.steps, None) as watch:
        result = train_tdmpc(config, out, resume=resume, watch=watch)
    _tell(result)


@train.command(name="sac-pixels")
def sac_pixels(
    *,
    task: str | None = None,
    dynamics: str | None = None,
    out: Path,
    steps: int | None = None,
    seed: int | None = None,
    horizon: int | None = None,
    image_size: int | None = None,
    encoder: str | None = None,
    batch_size: int | None = None,
    prediction_weight: float | None = None,
    updates_per_decision: float | None = None,
    random_decisions: int | None = None,
    replay_steps: int | None = None,
    replay_gib: float | None = None,
    action_repeat: int | None = None,
    num_envs: int | None = None,
    processes: int | None = None,
    evaluate_every: int | None = None,
    evaluate_episodes: int | None = None,
    published: bool = False,
    resume: bool = False,
) -> None:
    """Soft Actor-Critic from pixels, with representations that predict themselves.

    Args:
        task: a DMC task, a dm_control id or any Gymnasium id that draws itself; cartpole-swingup if none is given.
        dynamics: core that predicts: koopman, which is the default, mlp (SPR), another core, or none for plain SAC.
        out: folder for metrics, checkpoints and the replay.
        steps: environment steps; a decision takes several of them on DMC tasks.
        seed: of everything random; 0 if none is given.
        horizon: decisions that representations are predicted ahead; 5 if not given.
        image_size: height and width of a frame.
        encoder: patches, which is fast on a CPU, or published, the four convolutions of the literature.
        batch_size: transitions per update.
        prediction_weight: weight of the self-prediction loss.
        updates_per_decision: updates per decision.
        random_decisions: decisions with random actions before the first update.
        replay_steps: frames that the replay keeps.
        replay_gib: the same in GiB.
        action_repeat: environment steps per decision; as published for DMC tasks, 1 elsewhere.
        num_envs: environments stepped together.
        processes: processes that draw; one per environment up to the number of cores if not given.
        evaluate_every: environment steps between evaluations.
        evaluate_episodes: episodes per evaluation.
        published: 84×84 images, the published encoder and batches of 512, for an accelerator.
        resume: continue the run in `out` with its own settings; only steps, evaluations and processes may change.
    """
    from koopax.agents import PixelSACConfig, pixel_arm, train_pixel_sac
    from koopax.agents.run import read_config

    changeable = {
        "steps": steps,
        "evaluate_every": evaluate_every,
        "evaluate_episodes": evaluate_episodes,
        "processes": processes,
    }
    fixed = {
        "task": task,
        "seed": seed,
        "horizon": horizon,
        "image_size": image_size,
        "encoder": encoder,
        "batch_size": batch_size,
        "prediction_weight": prediction_weight,
        "updates_per_decision": updates_per_decision,
        "random_decisions": random_decisions,
        "replay_steps": replay_steps,
        "replay_gib": replay_gib,
        "action_repeat": action_repeat,
        "num_envs": num_envs,
    }
    if resume:
        recorded = read_config(out, PixelSACConfig)
        refuse_changes(given_alone(fixed | {"dynamics": dynamics}), recorded, out, task)
        if published:
            raise KoopaxError("--resume keeps a run's sizes: leave out --published.")
    else:
        recorded = pixel_arm(dynamics or "koopman", published=published, **given_alone(fixed))
    config = dataclasses.replace(recorded, **given_alone(changeable))
    with training_progress(f"{config.task} pixels {config.dynamics}", config.steps, None) as watch:
        result = train_pixel_sac(config, out, resume=resume, watch=watch)
    _tell(result)


def _tell(result: "TrainResult") -> None:
    """Say how a training ended; exit code 130 if it was interrupted."""
    if result.interrupted:
        steps, out = result.environment_steps, result.folder
        errors().print(f"stopped at {steps} steps; go on with --out {out} --resume", style="yellow", soft_wrap=True)
        raise SystemExit(130)
    results().print(f"{result.folder}: finished", highlight=False, soft_wrap=True)


@app.command
def play(
    run: tyro.conf.Positional[Path],
    *,
    episodes: int = 1,
    plan_length: int | None = None,
    video: bool = True,
    out: Path | None = None,
    json: bool = False,
) -> None:
    """Let a trained agent play: its returns, how far its model can be trusted, and a video of what it plans or sees.

    Args:
        run: the folder of a run of TD-MPC or of SAC from pixels.
        episodes: whole episodes, played together; the video shows the first.
        plan_length: steps that TD-MPC's plans look ahead; as at the end of training if not given.
        video: draw the first episode, with what plans foresee beside what happened, or with the frames the agent sees.
        out: the .mp4 file; play.mp4 in the run folder by default, where `koopax report` finds it.
        json: print one JSON document.
    """
    from koopax._atomic import check_place
    from koopax._provenance import provenance
    from koopax.cli.tables import play_table

    path = out or run / "play.mp4"
    if video:
        check_place(path)
    with errors().status("playing"):
        played = _played(run, episodes, plan_length)
    if video:
        with errors().status("drawing"):
            _write_film(played, path)
        errors().print(f"written to {path}", highlight=False, soft_wrap=True)
    if json:
        print_json(played.to_json() | {"run": str(run), "video": str(path) if video else None} | provenance())
    else:
        results().print(play_table(played.to_json()))


def _played(run: Path, episodes: int, plan_length: int | None) -> "Demonstration | PixelDemonstration":
    if kind_of(run) != "sac-pixels":
        from koopax.agents.tdmpc.demonstration import demonstrate

        return demonstrate(run, episodes=episodes, plan_length=plan_length)
    from koopax.agents.pixels.demonstration import demonstrate as demonstrate_pixels

    if plan_length is not None:
        raise KoopaxError(f"--plan-length {plan_length}: {str(run)!r} is SAC from pixels, which makes no plans.")
    return demonstrate_pixels(run, episodes=episodes)


def _write_film(played: "Demonstration | PixelDemonstration", path: Path) -> None:
    from koopax.agents.pixels.demonstration import PixelDemonstration

    if isinstance(played, PixelDemonstration):
        from koopax.reporting.pixel_film import write_pixel_film

        write_pixel_film(played, path)
    else:
        from koopax.reporting.plan_film import write_plan_film

        write_plan_film(played, path)


@app.command(name="export-experts")
def export_experts(run: tyro.conf.Positional[Path], name: tyro.conf.Positional[str]) -> None:
    """Choose expert, medium and ladder policies from a SAC run, measure each, and write weights and results.

    Args:
        run: the folder of a SAC run with snapshots.
        name: what the policies are called, such as hopper.
    """
    from koopax.agents import export_experts as export

    export(run, name, watch=lambda message: errors().print(message, highlight=False))
