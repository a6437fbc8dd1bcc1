INSERT INTO {{table}} SELECT b FROM {{topic}};
