"""The classes behind `disentune.Sweep`, `disentune.load` and what they return."""
