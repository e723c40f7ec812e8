"""What people look at: the OpenAPI document, a page that shows it, and a front page.

All pages are whole in themselves: no script, style or font comes from elsewhere.
"""
