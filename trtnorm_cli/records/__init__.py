"""What a comparison and an export found out, as manifests hold it."""
