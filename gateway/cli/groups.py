"""Groups of commands whose help lists each command's purpose in a complete sentence."""

import sys

import click


class Commands(click.Group):
    """A group of commands; click breaks their sentences to fit the terminal."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        named = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        with formatter.section("Commands"):
            formatter.write_dl(
                [
                    (name, command.get_short_help_str(sys.maxsize))
                    for name, command in named
                    if command is not None
                ]
            )
