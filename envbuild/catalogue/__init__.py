"""Makes the catalogue, a static site about environments. The site needs no server program, and its pages make no requests.

Pure: the functions turn values into the texts of files.
"""
