"""The studio: a local web page for designing, making and exploring a release.

    security   who may ask: loopback, one-time link, same origin, and a path that no other server is sent the cookie for
    project    what was decided, on disk, so that neither a killed server nor a closed browser loses it
    design     forms into specs
    accuracy   sliders into budgets, and what a budget means as a risk
    jobs       comparison and release, as processes of their own that can be found again
    steps      the state that all pages share, and what each step of the path shows
    changes    what each step changes
    explore    a bundle's tables, map, areas and downloads
    rendering  templates, and what the words of the pages mean
    pages      the requests
    server     the command's side

The page calls the public functions of trueup: what it can do, a script can.
"""
