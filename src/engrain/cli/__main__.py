"""`python -m engrain.cli`: the same as `engrain`."""

from engrain.cli import main

main()
