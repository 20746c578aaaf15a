"""The rating matrix cut into blocks and stripes, laid out as mini-batches (Section 4.1)."""
