"""`python -m engrain`: the same as `engrain`."""

from engrain.cli import main

main()
