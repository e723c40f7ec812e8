"""The command line: flags in, one frozen configuration out, and one clear line when something is wrong.

It owns the names and help texts of flags, what is printed, and exit statuses. It does not know how processes
are started or watched.
"""
