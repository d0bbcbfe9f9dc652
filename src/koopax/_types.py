"""Array types, and what each axis means.

Every signature in koopax is written for one example; batches are made with `jax.vmap` at the call site.

| axis     | meaning                                                             |
|----------|---------------------------------------------------------------------|
| `time`   | steps of a rollout, 1 … T                                           |
| `state`  | components of the observed state                                    |
| `action` | components of the action                                            |
| `latent` | real width of a latent: `latent_size` = 2 × modes                   |
| `modes`  | complex Koopman modes; a latent holds their real parts, then their imaginary parts |
"""

from jaxtyping import Array, Bool, Float, Int, Key, Num, PRNGKeyArray, PyTree, UInt8

__all__ = ["Array", "Bool", "Float", "Int", "Key", "Num", "PRNGKeyArray", "PyTree", "UInt8"]
