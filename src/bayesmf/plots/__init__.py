"""Pictures of a fit. matplotlib is optional and imported on use."""
