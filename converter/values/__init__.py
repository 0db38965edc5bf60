"""Values into typed columns: one decoder per format, one shape for what they give."""
