"""Updates per second of SAC with the environments included: python benchmarks/sac_rate.py [RESULT.json]

Give it the machine to itself; every configuration is measured for a few seconds after compilation.
"""

import json
import sys
from pathlib import Path

from koopax._provenance import provenance
from koopax.agents.sac import SACConfig, measure_rate

PLAIN = {"critic_norm": "layer", "policy_delay": 1, "adam_b1": 0.9, "updates_per_step": 1.0}


def main(result: Path) -> None:
    """Measure and write."""
    configs = [SACConfig(env=env) for env in ("Hopper-v5", "Walker2d-v5", "HalfCheetah-v5")]
    configs.append(SACConfig(env="HalfCheetah-v5", **PLAIN))
    rates = [measure_rate(config, seconds=9, repeats=9) for config in configs]
    for rate in rates:
        print(
            f"{rate['env']:<16} critic_norm={rate['critic_norm']:<6} {rate['updates_per_second']:6.0f} updates/s, "
            f"{100 * rate['environment_share']:.0f} % of the time in the environments",
            file=sys.stderr,
        )
    result.parent.mkdir(parents=True, exist_ok=True)
    result.write_text(json.dumps({"results": rates, **provenance()}, indent=1) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1] if len(sys.argv) > 1 else "results/sac-rate.json"))
