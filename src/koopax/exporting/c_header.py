"""A model as one C99 header: static constants and three functions, without allocation and without dependencies."""

import textwrap
from dataclasses import dataclass
from pathlib import Path

from koopax._atomic import new_file
from koopax.exporting.c_body import FunctionWriter
from koopax.exporting.c_formulas import Constants
from koopax.exporting.functions import ModelFunctions
from koopax.exporting.program import trace

HEADER, EXAMPLE = "{prefix}.h", "example.c"


@dataclass(frozen=True)
class Memory:
    """What the code of a model needs, in bytes."""

    constants: int
    """Parameters, which are read only."""
    stack: int
    """The largest array that a function has on the stack, the latent of a rollout included."""


def write_c(functions: ModelFunctions, folder: Path, *, prefix: str) -> tuple[list[str], Memory]:
    """Write the header and a program that times it; their names, and the memory that they need."""
    constants = Constants(prefix)
    encode, step = (FunctionWriter(trace(each, "C"), constants) for each in (functions.encode, functions.step))
    bodies = encode.body(), step.body()
    sizes = functions.sizes
    memory = Memory(constants.num_bytes(), 4 * (max(encode.scratch_size, step.scratch_size) + sizes.latent))
    names = {
        "prefix": prefix,
        "PREFIX": prefix.upper(),
        "state": sizes.state,
        "action": sizes.action,
        "latent": sizes.latent,
        "horizon": sizes.horizon,
        "constant_bytes": memory.constants,
        "stack_bytes": memory.stack,
    }
    header = _HEADER.format(**names, constants=constants.text(), encode=bodies[0], step=bodies[1])
    written = {HEADER.format(prefix=prefix): header, EXAMPLE: _EXAMPLE.format(**names)}
    for name, text in written.items():
        with new_file(folder / name, overwrite=True) as temporary:
            temporary.write_text(text)
    return list(written), memory


_HEADER = """\
/* A learned dynamics model, written by koopax. C99, no allocation; link with -lm.
 *
 * {prefix}_encode   the latent of a state, at which a prediction begins
 * {prefix}_step     the next latent, its state, and the reward of the step; next_latent may be latent itself
 * {prefix}_rollout  {PREFIX}_HORIZON states and rewards of as many actions: actions[t * {PREFIX}_ACTION_SIZE + i]
 *
 * States, actions and rewards are in the units of the data that the model was trained on. */
#ifndef {PREFIX}_MODEL_H
#define {PREFIX}_MODEL_H

#include <math.h>

#define {PREFIX}_STATE_SIZE {state}
#define {PREFIX}_ACTION_SIZE {action}
#define {PREFIX}_LATENT_SIZE {latent}
#define {PREFIX}_HORIZON {horizon}
#define {PREFIX}_CONSTANT_BYTES {constant_bytes}
#define {PREFIX}_STACK_BYTES {stack_bytes}

{constants}

static inline void {prefix}_encode(const float *state, float *latent)
{{
{encode}
}}

static inline void {prefix}_step(const float *latent, const float *action, float *next_latent, float *state,
                                 float *reward)
{{
    (void)action;
{step}
}}

static inline void {prefix}_rollout(const float *state, const float *actions, float *states, float *rewards)
{{
    float latent[{PREFIX}_LATENT_SIZE];
    {prefix}_encode(state, latent);
    for (int t = 0; t < {PREFIX}_HORIZON; t++)
        {prefix}_step(latent, actions + t * {PREFIX}_ACTION_SIZE, latent, states + t * {PREFIX}_STATE_SIZE,
                      rewards + t);
}}

#endif
"""

_EXAMPLE = textwrap.dedent("""\
    /* Reads a state and {horizon} actions, writes as many states, each followed by its reward; with an argument N it
     * repeats the rollout N times and prints the microseconds per step and the bytes that the model takes.
     *
     *     gcc -Wall -Werror -std=c99 -O3 example.c -o example -lm
     */
    #include <stdio.h>
    #include <stdlib.h>
    #include <time.h>

    #include "{prefix}.h"

    static float state[{PREFIX}_STATE_SIZE], actions[{PREFIX}_HORIZON * {PREFIX}_ACTION_SIZE + 1];
    static float states[{PREFIX}_HORIZON * {PREFIX}_STATE_SIZE], rewards[{PREFIX}_HORIZON];

    static int read_floats(float *into, int count)
    {{
        for (int i = 0; i < count; i++)
            if (scanf("%f", &into[i]) != 1) return 0;
        return 1;
    }}

    int main(int argc, char **argv)
    {{
        if (argc > 1) {{
            const int rounds = atoi(argv[1]);
            const clock_t begin = clock();
            for (int i = 0; i < rounds; i++) {{
                {prefix}_rollout(state, actions, states, rewards);
                actions[0] = 1e-3f * rewards[{PREFIX}_HORIZON - 1]; /* so that no round can be left out */
            }}
            const double seconds = (double)(clock() - begin) / CLOCKS_PER_SEC;
            printf("%.4f microseconds per step, %d bytes of constants, %d bytes of stack\\n",
                   1e6 * seconds / ((double)rounds * {PREFIX}_HORIZON), {PREFIX}_CONSTANT_BYTES, {PREFIX}_STACK_BYTES);
            return 0;
        }}
        if (!read_floats(state, {PREFIX}_STATE_SIZE) ||
            !read_floats(actions, {PREFIX}_HORIZON * {PREFIX}_ACTION_SIZE)) {{
            fprintf(stderr, "give %d numbers of a state, then {horizon} actions of %d numbers\\n", {PREFIX}_STATE_SIZE,
                    {PREFIX}_ACTION_SIZE);
            return 2;
        }}
        {prefix}_rollout(state, actions, states, rewards);
        for (int t = 0; t < {PREFIX}_HORIZON; t++) {{
            for (int i = 0; i < {PREFIX}_STATE_SIZE; i++) printf("%.9g ", states[t * {PREFIX}_STATE_SIZE + i]);
            printf("%.9g\\n", rewards[t]);
        }}
        return 0;
    }}
    """)
