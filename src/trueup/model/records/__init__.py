"""The records that the functions of trueup return, such as a release or a posterior."""
