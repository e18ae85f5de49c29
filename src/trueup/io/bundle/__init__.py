"""The bundle: a folder on disk that holds a release, measurements or a posterior."""
