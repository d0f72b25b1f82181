"""Ralph himself: what a loop needs to know of its working directory."""
