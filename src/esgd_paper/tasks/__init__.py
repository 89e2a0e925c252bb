"""What the paper's experiments are trained and judged on: images, texts, frames, words."""
