"""Speech: from cepstra and transcripts to a state for every frame, and from state posteriors back to words."""
