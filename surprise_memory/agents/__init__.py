"""Agents: they act, and they learn from chunks of experience and the reward of a bonus; they never see M or W."""
