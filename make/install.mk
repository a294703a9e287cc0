# The version, installing, and the tarball.
.PHONY: install uninstall dist version

version:
	@echo $(VERSION)

PREFIX ?= /usr/local
SHARE = $(DESTDIR)$(PREFIX)/share
BINARY = $(DESTDIR)$(PREFIX)/bin/vitrain
MAN_PAGE = $(SHARE)/man/man1/vitrain.1
BASH_COMPLETION = $(SHARE)/bash-completion/completions/vitrain
ZSH_COMPLETION = $(SHARE)/zsh/site-functions/_vitrain

# The man page and completions come from the program itself; they are left out if it can't run here (a cross build).
SAY_OPTIONS = { mkdir -p $(dir $(2)) && $(BUILD)/vitrain options $(1) >$(2) 2>/dev/null && chmod 644 $(2); } || \
    { rm -f $(2); echo "left out $(2): '$(BUILD)/vitrain options $(1)' does not run here" >&2; }

# The recipes' words would be taken apart at blanks.
ifneq ($(and $(filter install uninstall,$(MAKECMDGOALS)),$(word 2,x$(DESTDIR)$(PREFIX)x)),)
$(error DESTDIR and PREFIX ('$(DESTDIR)$(PREFIX)') must not have blanks)
endif

install: vitrain
	install -d $(dir $(BINARY)) $(SHARE)/vitrain/config $(SHARE)/vitrain/submit $(SHARE)/doc/vitrain
	install -m 755 $(BUILD)/vitrain $(BINARY)
	install -m 644 config/*.yaml $(SHARE)/vitrain/config
	install -m 755 submit/*.sh $(SHARE)/vitrain/submit
	install -m 644 README.md CHANGELOG.md CITATION.cff LICENSE $(SHARE)/doc/vitrain
	for file in $$(find docs -type f); do install -D -m 644 $$file $(SHARE)/doc/vitrain/$$file || exit 1; done
	@$(call SAY_OPTIONS,--man,$(MAN_PAGE))
	@$(call SAY_OPTIONS,--completion=bash,$(BASH_COMPLETION))
	@$(call SAY_OPTIONS,--completion=zsh,$(ZSH_COMPLETION))
	@echo "installed below $(DESTDIR)$(PREFIX); 'make uninstall$(if $(DESTDIR), DESTDIR=$(DESTDIR))' removes it"

uninstall:
	rm -f $(BINARY) $(MAN_PAGE) $(BASH_COMPLETION) $(ZSH_COMPLETION)
	rm -rf $(SHARE)/vitrain $(SHARE)/doc/vitrain

# Only what is committed, so it needs git.
dist:
	@[ -e .git ] || { echo "make dist needs the git checkout" >&2; exit 1; }
	@git diff-index --quiet HEAD -- || echo "uncommitted changes are left out" >&2
	@name=vitrain-$(patsubst %.dirty,%,$(VERSION)) && git archive --prefix=$$name/ HEAD | gzip -n >$$name.tar.gz && echo "$$name.tar.gz"
