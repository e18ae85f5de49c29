"""The folder on disk that holds a release or its parts."""
