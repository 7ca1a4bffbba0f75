"""Files to a file server of the user's, by SFTP or HTTPS, in a process of its own."""
