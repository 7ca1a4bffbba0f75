"""One folder per feature; a file in it is named after the program that runs it."""
