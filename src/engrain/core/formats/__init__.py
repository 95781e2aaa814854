"""Files that engrain reads and writes: exports, manifests, imports."""
