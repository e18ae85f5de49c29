"""The bundle: a folder on disk with a release, measurements or a posterior."""
