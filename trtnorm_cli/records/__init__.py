"""The results of a comparison and of an export, as manifests hold them."""
