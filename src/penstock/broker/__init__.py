"""The contract between the engines and everything above them: Protocols, one for each subject, and values.

An endpoint, the server, the command line and the tests import this of an engine and nothing else.
"""
