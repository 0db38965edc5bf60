"""Record batches: framing, parsing, rebuilding."""
