"""YAML → BuildProfile, and what it means for a model's inputs."""
