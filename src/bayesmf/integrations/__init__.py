"""Models inside other tools: a module for each, which alone imports that tool."""
