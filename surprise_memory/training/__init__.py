"""One run: collect, learn, evaluate, save."""
