"""TD-MPC from states."""
