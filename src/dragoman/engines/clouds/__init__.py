"""Models in clouds: their addresses, and how a program authenticates.

places.py      the address of a model, from region, project or resource       identities.py   Entra ID and Google
aws.py         Amazon's keys, from where its own tools find them               sigv4.py        signing with them
"""
