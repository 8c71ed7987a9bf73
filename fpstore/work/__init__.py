"""Finished work in files: places, files of arrays, the folder of a job in tasks."""
