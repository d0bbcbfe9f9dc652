"""An experiment that trains nothing to the end: one document, measured in one go."""

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import Any, TypeVar

from koopax._errors import KoopaxError
from koopax.experiments.experiment import Place
from koopax.training.run import write_json

Size = TypeVar("Size")


def run_measurement(measure: Callable[[Size], dict[str, Any]], size: Size, place: Place) -> dict[str, Any]:
    """The document in `measurement.json`; measured where it is not there yet, refused where it is of another size."""
    path = place.results / "measurement.json"
    made_of = json.loads(json.dumps(asdict(size)))  # type: ignore[call-overload]  (budgets are dataclasses)
    if path.is_file():
        found = json.loads(path.read_text())
        if found.get("made_of", made_of) != made_of:
            raise KoopaxError(
                f"{str(path)!r} was measured with {found['made_of']}, but today's budget is {made_of}: delete it to "
                "measure anew, or use another --out."
            )
        return found
    place.report(str(path))
    found = {**measure(size), "made_of": made_of}
    write_json(path, found)
    return found
