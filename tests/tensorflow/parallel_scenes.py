"""What is not a comparison of numbers: saving, stopping, failing, refusing. Each runs on all ranks at once."""
