"""What a text may name: code, entry points of installed packages, studies."""
