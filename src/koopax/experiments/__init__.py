"""Every table and figure of the paper as a grid of cells that is resumed where it stopped."""
